"""Python source: values that flow into a prompt's stable part."""
