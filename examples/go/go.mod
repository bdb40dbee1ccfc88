module worker

go 1.24

require sluice v0.0.0

replace sluice => ../../bindings/go
