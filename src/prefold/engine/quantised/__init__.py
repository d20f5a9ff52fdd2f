"""K and V in 8 or 4 bits: about two or four times the tokens for the same memory, and what that costs in quality."""
