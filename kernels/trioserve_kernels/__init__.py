"""The operations a decoder layer needs beyond what torch does well, one operation a module.

Each module holds `reference` (plain torch, the meaning) and `cpu` (the form in use on a CPU);
`paged_attention` is a folder because it has a Triton form too. `../README.md` is the contract of
each. Only `trioserve.device.ops` imports this package. It imports neither trioserve nor trio, and
triton only when a Triton form is asked for.
"""
