"""What we do about it: the service, the policy, the sandbox and the command line."""
