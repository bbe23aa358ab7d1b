"""Site policy: which jobs may be changed, how far a request may be cut, and what the user is shown. Pure."""
