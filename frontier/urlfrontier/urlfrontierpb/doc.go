// Package urlfrontierpb is the URLFrontier protocol of crawler-commons, generated from
// urlfrontier.proto by `make proto`.
package urlfrontierpb
