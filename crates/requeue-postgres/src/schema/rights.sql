-- Gives the objects that a migration has made the rights of older ones, so that roles work on as before: tables those of requeue.owner, and
-- roles that may read requeue.item may read views.
do $$ declare r record; begin
  for r in select t.oid::regclass as it, a.grantee, string_agg(a.privilege_type, ', ') as rights
    from pg_class t join pg_class o on o.oid = case t.relkind when 'r' then 'requeue.owner'::regclass else 'requeue.item'::regclass end
    cross join lateral aclexplode(o.relacl) a
    where t.relnamespace = 'requeue'::regnamespace and t.relkind in ('r', 'v') and t.relacl is null and a.grantee <> o.relowner
      and (t.relkind = 'r' or a.privilege_type = 'SELECT')
    group by 1, 2 loop
    execute format('grant %s on %s to %s', r.rights, r.it, case when r.grantee = 0 then 'public' else r.grantee::regrole::text end);
  end loop;
end $$;
