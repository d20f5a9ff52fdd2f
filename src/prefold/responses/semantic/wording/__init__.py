"""What questions say, taken apart, and what two of them differ in: rules and word lists, no model."""
