from loadgen.gpu.command import main

main()
