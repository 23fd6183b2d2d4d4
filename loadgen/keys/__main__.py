from loadgen.keys.command import main

main()
