import{j as o}from"./part-7bb8cb69da8282d9.js";var e=o(null);export{e as a};
