version 1.1

# A workflow of four jobs. With a server in STROM_SERVER, such as that of `strom up --process-nodes 2`:
#
#   export MINIWDL__SCHEDULER__CONTAINER_BACKEND=strom
#   miniwdl run examples/squares.wdl numbers=1 numbers=2 numbers=3 --dir runs
#
# Afterwards the file in runs/_LAST/out/total_file contains 14, the sum of the squares.
workflow squares {
  input {
    Array[Int] numbers
  }

  scatter (number in numbers) {
    call square { input: number = number }
  }

  call total { input: squares = square.result }

  output {
    File total_file = total.sum
  }
}

task square {
  input {
    Int number
  }

  command <<<
    echo $((~{number} * ~{number})) > square.txt
  >>>

  output {
    File result = "square.txt"
  }

  runtime {
    cpu: 1
    memory: "200 MB"
    time_minutes: 5
  }
}

task total {
  input {
    Array[File] squares
  }

  command <<<
    cat ~{sep(" ", squares)} | awk '{ total += $1 } END { print total }' > total.txt
  >>>

  output {
    File sum = "total.txt"
  }

  runtime {
    cpu: 1
    memory: "200 MB"
  }
}
