"""The web page of a run, live or finished: its content, the agent at work, and the server.

Only the modules ``address`` and ``stage`` are imported before a browser opens the page.
"""
