//go:build !soak

package model

// sequences and steps are how many sequences a test has, and how many steps one has on average.
const sequences, steps = 25, 30
