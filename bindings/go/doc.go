// Package sluice shares the quota of one vendor (requests and tokens a minute, calls at the same time) between many
// products, through one DynamoDB table and without a server in between. It is the SDK of Rust, with its own words and
// settings.
//
//	client, err := sluice.FromEnv(ctx)
//	...
//	http.Client{Transport: &sluice.Transport{Client: client, Vendor: "openai"}}
//
//	err = client.WithSlot(ctx, sluice.On("elevenlabs#concurrent"), func(ctx context.Context, slot *sluice.Slot) error {
//		return call(ctx)
//	})
//
// A context ends every wait at once, and what the wait had goes back.
package sluice
