"""Causal attention over keys and values that lie in pages; one kernel for prefill and decode.

Pages as in PagedAttention (Kwon et al. 2023, arXiv:2309.06180). Row r, a query at `positions[r]`
of sequence `row_sequence[r]`, attends to positions 0..positions[r] of that sequence, and position p
lies in page `page_table[sequence, p // page_size]` at offset p % page_size. Query head h reads
key-value head h // (hq / hkv).

`reference` is the meaning, `cpu` the form in use on a CPU, `triton` one for NVIDIA GPUs.
"""
