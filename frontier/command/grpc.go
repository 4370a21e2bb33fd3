package command

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"os"

	"google.golang.org/grpc"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/api"
	"github.com/urlake/urlake/frontier/urlfrontier"
	"github.com/urlake/urlake/internal/cli"
)

// listenGRPC listens for gRPC, or returns nil if it is not served.
func (o *options) listenGRPC(ctx context.Context) (net.Listener, error) {
	if o.grpc == "" {
		return nil, nil
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", o.grpc)
}

// nodeName returns the address at which other processes reach this one, and the name of this
// process, in which they find it. The listener for gRPC is nil if that is not served.
func (o *options) nodeName(web, rpc net.Listener) (address, name string, err error) {
	unique := rand.Text()
	if address = o.advertise; address == "" {
		if address, err = reachable(web.Addr()); err != nil {
			return "", "", err
		}
	}
	if rpc == nil {
		return address, address + "#" + unique, nil
	}
	at, err := reachable(rpc.Addr())
	if err == nil && o.advertise != "" {
		// The host of --advertise, and the port that is listened on.
		host, _, bad := net.SplitHostPort(o.advertise)
		if bad != nil {
			return "", "", cli.Usagef("--advertise %s: it is host:port", o.advertise)
		}
		var port string
		if _, port, err = net.SplitHostPort(at); err == nil {
			at = net.JoinHostPort(host, port)
		}
	}
	return address, urlfrontier.NameWith(address, unique, at), err
}

// reachable is an address at which other machines reach what listens.
func reachable(listening net.Addr) (string, error) {
	host, port, err := net.SplitHostPort(listening.String())
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, port), nil
}

// serveGRPC serves a frontier by gRPC if there is a listener. Failed gets the error that ended it.
// The function that it returns ends it.
func serveGRPC(listener net.Listener, f *frontier.Frontier, handler *api.Handler, log *slog.Logger, level *slog.LevelVar, failed chan<- error) (stop func(context.Context) error) {
	if listener == nil {
		return func(context.Context) error { return nil }
	}
	log.Info("serving", "grpc", listener.Addr().String())
	server := urlfrontier.New(f, log, level, handler.Registry())
	go func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			failed <- err
		}
	}()
	return server.Stop
}
