package sluice_test

import (
	"context"
	"fmt"
	"net/http"

	sluice "github.com/OWNER/sluice/bindings/go"
)

func Example() {
	ctx := context.Background()
	client, err := sluice.FromEnv(ctx)
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)

	// One line in the client of a vendor: each call waits for its start, and what it used is settled.
	_ = http.Client{Transport: &sluice.Transport{Client: client, Vendor: "openai"}}

	// Or around a call of any kind: waits, runs, and gives back on every way out.
	if _, err := client.Ops().ApplyLimit(ctx, "elevenlabs#concurrent", sluice.Concurrent(15)); err != nil {
		panic(err)
	}
	err = client.WithSlot(ctx, sluice.On("elevenlabs#concurrent"), func(ctx context.Context, slot *sluice.Slot) error {
		fmt.Println("the call runs")
		return nil
	})
	fmt.Println(err)
	// Output:
	// the call runs
	// <nil>
}
