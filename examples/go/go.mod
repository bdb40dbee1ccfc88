module worker

go 1.24

require github.com/OWNER/sluice/bindings/go v0.0.0

replace github.com/OWNER/sluice/bindings/go => ../../bindings/go
