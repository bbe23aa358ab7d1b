"""Who is served when, and by whom: pure policies, which production and the simulator share."""
