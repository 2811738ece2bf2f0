"""Packs pods onto nodes with whole and shared GPUs, with the protocol of Weng et al. 2023.

``trace`` reads the lists of nodes and pods, ``arrivals`` generates the arrival sequence of a seed,
``kernels`` place it by a rule of ``policies``, ``simulation`` measures the result. All functions
are pure.
"""
