package api

import (
	"net"
	"reflect"
	"testing"
	"time"
)

// SetListTime sets how long the URLs of a page are looked for until a test ends.
func SetListTime(t *testing.T, d time.Duration) {
	before := listTime
	listTime = d
	t.Cleanup(func() { listTime = before })
}

// SetKeepInterval sets how often a snapshot is kept while it is read until a test ends.
func SetKeepInterval(t *testing.T, d time.Duration) {
	before := keepInterval
	keepInterval = d
	t.Cleanup(func() { keepInterval = before })
}

// Schemas are the types of bodies, of requests and of answers, by the names of their schemas in
// openapi.yaml. What they contain has schemas too.
var Schemas = map[string]reflect.Type{
	"Problem": reflect.TypeFor[problem](), "URLLine": reflect.TypeFor[urlLine](), "LineResult": reflect.TypeFor[lineResult](),
	"ClaimRequest": reflect.TypeFor[claimRequest](), "Claims": reflect.TypeFor[claimsAnswer](), "ResultLine": reflect.TypeFor[resultLine](),
	"LeasesRequest": reflect.TypeFor[leasesRequest](), "Extended": reflect.TypeFor[extended](), "Released": reflect.TypeFor[released](),
	"Seen": reflect.TypeFor[seenAnswer](), "Visit": reflect.TypeFor[visit](), "VisitLine": reflect.TypeFor[visitLine](), "VisitsEnd": reflect.TypeFor[visitsEnd](),
	"ListedURL": reflect.TypeFor[listedURL](), "URLsEnd": reflect.TypeFor[urlsEnd](), "Deleted": reflect.TypeFor[deletedAnswer](),
	"Domain": reflect.TypeFor[domainAnswer](), "DomainChange": reflect.TypeFor[domainChange](), "Robots": reflect.TypeFor[robotsAnswer](),
	"SeenLine": reflect.TypeFor[seenLine](), "SeenResult": reflect.TypeFor[seenResult](), "Stats": reflect.TypeFor[statsAnswer](), "Snapshot": reflect.TypeFor[snapshotAnswer](),
}

// Requests are those of Schemas that clients send.
var Requests = []string{"URLLine", "ClaimRequest", "ResultLine", "LeasesRequest", "SeenLine", "VisitLine", "DomainChange", "RobotsChange"}

var Hold = hold

// Inner returns what a Listener wraps.
func Inner(l net.Listener) net.Listener { return l.(wholeListener).Listener }
