"""One-shot packing of pods onto nodes with whole and shared GPUs, as measured by Weng et al. 2023.

``trace`` reads the lists, ``arrivals`` generates the sequence of a seed, ``kernels`` place it by a
rule of ``policies``, ``simulation`` measures the result. All functions are pure.
"""
