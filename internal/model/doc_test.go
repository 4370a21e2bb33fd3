// Package model lets a lake live through random sequences of everything that can happen to it, and
// holds all its answers against those of a map. Everything runs in one process, by the functions
// that workers and commands call. What a sequence does depends on its draws alone, so that rapid
// can shrink one that fails.
package model
