"""Experiments with containers on two real kubelets, which a link of limited rate connects."""
