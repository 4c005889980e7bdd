"""What was reproduced: the paper's numbers, verdicts claim by claim, tables, figures and a page to look at."""
