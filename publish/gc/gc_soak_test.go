//go:build soak

package gc_test

func init() { everyInterleaving = true }
