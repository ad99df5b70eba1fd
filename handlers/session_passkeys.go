package handlers

import (
	"context"
	"net/http"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
)

// origin is where the browser shows the dashboard.
func origin(r *http.Request) string {
	if isSecure(r) {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func (s *Server) startPasskey(ctx context.Context, who core.Actor, in accounts.PasswordIn) (any, error) {
	return s.svc.StartPasskey(ctx, who, origin(callOf(ctx).r), in)
}

func (s *Server) addPasskey(ctx context.Context, who core.Actor, in accounts.NewPasskeyIn) (*accounts.Session, error) {
	return s.svc.AddPasskey(ctx, who, origin(callOf(ctx).r), in)
}

func (s *Server) offerPasskey(ctx context.Context, _ core.Actor) (any, error) {
	return s.svc.OfferPasskey(ctx, origin(callOf(ctx).r))
}

func (s *Server) usePasskey(ctx context.Context, _ core.Actor, in accounts.UsePasskeyIn) (*accounts.Session, error) {
	c := callOf(ctx)
	out, err := s.svc.UsePasskey(ctx, s.visitor(c), origin(c.r), in)
	if err != nil {
		return nil, s.logRefusal(c, "", err)
	}
	return s.setSession(c, out), nil
}
