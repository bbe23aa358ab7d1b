"""What will happen: features, demand predictors, and the artefacts that serve them."""

import os

# ONNX Runtime's wheels tell Microsoft about the process that imports them, and keep a database for that in its home
# folder, unless this is set before the import; `disable_telemetry_events()` comes too late for both.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
