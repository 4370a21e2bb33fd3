//go:build soak

package lakecheck_test

func init() { wholeLake = true }
