//go:build soak

package testenv

const soak = true
