"""What will happen: what jobs will need, what will be asked for, and in which order it is best run."""

import os

# ONNX Runtime's wheels tell Microsoft about the process that imports them, and keep a database for that in its home
# folder, unless this is set before the import; `disable_telemetry_events()` comes too late for both.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
