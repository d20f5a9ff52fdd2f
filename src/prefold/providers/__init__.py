"""What a provider's prompt cache does: rules as dated data, and usage objects of every provider as one `Usage`."""
