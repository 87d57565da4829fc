package main

import "testing"

func TestUnscrambleInvertsScramble(t *testing.T) {
	for i := range uint64(100_000) {
		if got := unscramble(scramble(i)); got != i {
			t.Fatalf("%d came back as %d", i, got)
		}
	}
}

func TestStringKeysHave31Bytes(t *testing.T) {
	if k := stringKey(1234); k != "default/deployment-000000001234" || len(k) != 31 {
		t.Fatal(k)
	}
}
