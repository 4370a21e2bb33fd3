//go:build soak

package e2e

func init() { shortKills, everyRequest = nil, true }
