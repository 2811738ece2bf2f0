module stromboli/tools/singularity

go 1.24.0

require github.com/sylabs/singularity/v4 v4.3.0
