module stromboli/tools/volcano

go 1.25.0

require (
	volcano.sh/apis v1.14.0
	volcano.sh/volcano v1.15.0
)
