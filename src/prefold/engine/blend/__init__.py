"""Blending: chunks of a prompt, such as retrieved passages, are reused wherever they stand.

A prefix cache helps where requests begin alike. Passages that come in another order each time share nothing with it but
their own text. So a chunk's K and V are kept as it has them alone, and when it appears again its keys are turned to
their new positions and a small share of its tokens is computed anew: those that the question looks at and that the
other passages change. What comes out is near to the exact K and V, not equal: it stays with the request that asked for
it. After CacheBlend (Yao et al., EuroSys 2025).
"""
