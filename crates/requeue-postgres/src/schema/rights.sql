-- Tables that a migration has made have the rights of requeue.owner, so that roles work on as before.
do $$ declare r record; begin
  for r in select t.oid::regclass as it, a.grantee, string_agg(a.privilege_type, ', ') as rights
    from pg_class t, pg_class o cross join lateral aclexplode(o.relacl) a
    where t.relnamespace = 'requeue'::regnamespace and t.relkind = 'r' and t.relacl is null
      and o.oid = 'requeue.owner'::regclass and a.grantee <> o.relowner
    group by 1, 2 loop
    execute format('grant %s on %s to %s', r.rights, r.it, case when r.grantee = 0 then 'public' else r.grantee::regrole::text end);
  end loop;
end $$;
