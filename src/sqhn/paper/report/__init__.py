"""The report of a run: verdicts on every claim, tables, figures and a web page."""
