"""HyperNodes and Numatopologies: created from the network and from node reports."""
