-- Plans are forced in many functions: with scans that are turned off a plan looks so dear that it would be compiled at each call, for half a second.
do $$
declare f regprocedure;
begin
  for f in select p.oid from pg_proc p join pg_language l on l.oid = p.prolang
    where p.pronamespace = 'requeue'::regnamespace and (l.lanname = 'plpgsql' or p.proconfig is not null) loop
    execute format('alter function %s set jit = off', f);
  end loop;
end $$;
