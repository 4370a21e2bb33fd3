//go:build unix

package urlfrontier_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// TestURLsComeBackAsTheyWerePut puts URLs in several spellings and with metadata: a client gets
// each back in the spelling in which it came first, in the queue of its host, with all of its
// metadata.
func TestURLsComeBackAsTheyWerePut(t *testing.T) {
	p := newCluster(t, 1, nil).processes[0]
	metadata := map[string]*pb.StringList{
		"source":           {Values: []string{"https://a.example/", "größe \"x\" \n\x00"}},
		"empty":            {},
		"":                 {Values: []string{""}},
		"urlfrontier.url":  {Values: []string{"mine"}},
		"urlfrontier.url'": {Values: []string{"mine, too"}},
	}
	acks := p.put(t,
		discovered("1", &pb.URLInfo{Url: "HTTP://Gac.ICANN.org:80?language_id=9#top", Metadata: metadata}),
		discovered("2", info("http://gac.icann.org/?language_id=9", "", "")),
		discovered("", info("https://b.example/x", "queue", "other")),
		discovered("3", info("mailto:somebody@example.com", "", "")),
		discovered("4", info("", "", "")),
		&pb.URLItem{ID: "5"},
	)
	for id, want := range map[string]pb.AckMessage_Status{
		"1": pb.AckMessage_OK, "2": pb.AckMessage_SKIPPED, "https://b.example/x": pb.AckMessage_OK,
		"3": pb.AckMessage_SKIPPED, "4": pb.AckMessage_SKIPPED, "5": pb.AckMessage_SKIPPED,
	} {
		if got, ok := acks[id]; !ok || got != want {
			t.Errorf("ack of %q: %v, %v, want %v", id, got, ok, want)
		}
	}
	if len(acks) != 6 {
		t.Errorf("%d acks: %v", len(acks), acks)
	}
	want := map[string]*pb.URLInfo{
		"DEFAULT": {Url: "HTTP://Gac.ICANN.org:80?language_id=9#top", Key: "gac.icann.org", CrawlID: "DEFAULT", Metadata: metadata},
		"other":   {Url: "https://b.example/x", Key: "queue", CrawlID: "other"},
	}
	got := p.get(t, &pb.GetParams{})
	if len(got) != len(want) {
		t.Errorf("%d URLs: %v", len(got), got)
	}
	for _, u := range got {
		if !proto.Equal(u, want[u.GetCrawlID()]) {
			t.Errorf("%v, want %v", u, want[u.GetCrawlID()])
		}
	}
}

// TestExcludedDomain holds that nothing is taken or handed out of the hosts of a domain that was
// excluded over HTTP, whichever process is asked.
func TestExcludedDomain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, nil)
	put := func(p *process, path string, want pb.AckMessage_Status) {
		t.Helper()
		p.putAll(t, want, discovered("", info("http://www.bg.example/"+path, "", "")), discovered("", info("http://m.bg.example/"+path, "", "")))
	}
	put(c.processes[0], "1", pb.AckMessage_OK)
	yes := true
	changed := 0
	for _, p := range c.processes {
		err := p.f.ChangeDomain(t.Context(), "bg.example", frontier.DomainChange{Exclude: &yes})
		if err == nil {
			changed++
		} else if !errors.Is(err, frontier.ErrElsewhere) {
			t.Fatal(err)
		}
	}
	if changed != 1 {
		t.Fatalf("%d processes serve the domain", changed)
	}
	for _, p := range c.processes {
		if err := p.f.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range c.processes {
		put(p, "2", pb.AckMessage_SKIPPED)
		if got := p.get(t, &pb.GetParams{}); len(got) > 0 {
			t.Errorf("it hands out %v", got)
		}
	}
}
