package main

import "fmt"

// scramble is splitmix64's output function: a bijection, so that keys are distinct
// and their hashes know nothing of the order in which they come.
func scramble(i uint64) uint64 {
	z := i + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// unscramble gives back what scramble was given: which key of a run this is.
func unscramble(z uint64) uint64 {
	z = (z ^ z>>31 ^ z>>62) * 0x319642b2d24d8ec3
	z = (z ^ z>>27 ^ z>>54) * 0x96de1b173f119089
	return (z ^ z>>30 ^ z>>60) - 0x9e3779b97f4a7c15
}

func u64Key(i int) uint64 { return scramble(uint64(i)) }

// stringKey has 31 bytes, in an allocation of its own.
func stringKey(i int) string { return fmt.Sprintf("default/deployment-%012d", i) }

// keysFrom builds the keys first, first+1, … first+n-1.
func keysFrom[K comparable](key func(int) K, first, n int) []K {
	keys := make([]K, n)
	for i := range keys {
		keys[i] = key(first + i)
	}
	return keys
}

// random is xorshift64*: which of the hot keys a producer touches next, and delays.
type random uint64

func newRandom(seed uint64) random { return random(scramble(seed) | 1) }

func (r *random) next() uint64 {
	*r ^= *r >> 12
	*r ^= *r << 25
	*r ^= *r >> 27
	return uint64(*r) * 0x2545f4914f6cdd1d
}

// below gives a number below n, which is below 2^32.
func (r *random) below(n uint64) uint64 { return (r.next() >> 32) * n >> 32 }
