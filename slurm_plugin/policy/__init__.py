"""Site policy: which jobs may be touched, how far a request may be cut, and what its user is told. Pure."""
