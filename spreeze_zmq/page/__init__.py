"""The web page of a run: what it shows of a live run or of a run's folder, and the server that shows it.

Nothing here is imported, and no port is read, before somebody opens the page.
"""
