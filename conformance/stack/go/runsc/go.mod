module sandglass-stack-runsc

go 1.26.8

require gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237 // indirect
