"""One-shot packing of pods onto nodes with whole and shared GPUs, as Weng et al. 2023 measure it.

``trace`` reads the lists, ``arrivals`` makes the sequence of a seed, ``kernels`` place it by a rule
of ``policies``, ``simulation`` measures what came out. All of it is a function of its arguments.
"""
