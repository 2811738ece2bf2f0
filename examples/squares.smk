# A workflow of four jobs. With a server in STROM_SERVER, such as that of `strom up --process-nodes 2`:
#
#   snakemake --snakefile examples/squares.smk --executor strom --jobs 10 --directory results
#
# Afterwards results/total.txt contains 14, the sum of the squares.
NUMBERS = range(1, 4)


rule total:
    input:
        expand("square-{number}.txt", number=NUMBERS),
    output:
        "total.txt",
    shell:
        "awk '{{ total += $1 }} END {{ print total }}' {input} > {output}"


rule square:
    output:
        "square-{number}.txt",
    threads: 1
    resources:
        mem_mb=200,
        runtime=5,
    shell:
        "echo $(({wildcards.number} * {wildcards.number})) > {output}"
