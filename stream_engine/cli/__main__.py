from stream_engine.cli.main import main

main()
