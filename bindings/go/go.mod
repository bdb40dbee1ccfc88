module github.com/OWNER/sluice/bindings/go

go 1.24
