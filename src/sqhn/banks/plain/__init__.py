"""Banks in main memory, in NumPy alone. To write a bank of your own, read these after `banks/interface.py`."""
