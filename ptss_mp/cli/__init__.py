"""The command line: `python -m ptss_mp`, `ptss-mp`."""
