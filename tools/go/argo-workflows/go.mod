module stromboli/tools/argo-workflows

go 1.24.10

require github.com/argoproj/argo-workflows/v3 v3.7.4
